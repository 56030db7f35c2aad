"""What weft gives to models and data of other libraries."""
