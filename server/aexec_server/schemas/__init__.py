"""The API's description, an OpenAPI document, made from the table of routes."""
