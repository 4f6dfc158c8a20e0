"""What can be asked of the server: one module an operation, or a family of them."""
