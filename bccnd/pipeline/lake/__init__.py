"""Delta tables below a folder or URI: written by Spark's tasks, committed by the driver, read by anything."""
