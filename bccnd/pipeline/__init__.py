"""The pipeline on Spark: from the journals of many hosts to tables of loss, delivery, liveness and security."""
