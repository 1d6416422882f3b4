"""The routes, one module per noun. `application.ALL` lists them."""
