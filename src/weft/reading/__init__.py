"""Reading what somebody else may have written: JSON and arrays, checked against what they promise.

`json_values` bounds and describes JSON, `arrays` reads `.npy` and `.npz` by what their headers say, `bounds`
says how much may be read at all, and `damage` turns what still goes wrong into one line that names the file.
"""
