"""Operations of the server, one module for each operation or family of them."""
