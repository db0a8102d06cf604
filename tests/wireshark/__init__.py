"""The dissector for Wireshark, on captures that the tests make."""
