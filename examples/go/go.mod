module bccn.invalid/bccn

go 1.19
