"""The report: tables -> one page that an operator reads in two minutes. Needs pyarrow and Jinja2, and no Spark."""
