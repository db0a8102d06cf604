"""The report: tables -> one page that an operator reads in two minutes. Needs pyarrow and matplotlib, and no Spark."""
