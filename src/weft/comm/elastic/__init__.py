"""Workers that come and go: parts that compute alike wherever they are held, and who holds which when."""
