module bccn-example

go 1.19
