"""What commands share: options, files, tables, the client."""
