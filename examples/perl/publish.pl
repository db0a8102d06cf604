#!/usr/bin/perl
# publish.pl - publishes one message, or each line of its input, through bccnd.
#   ./publish.pl /run/bccnd/bus.sock demo/hello 'hello, world'
#   printf 'one\ntwo\n' | ./publish.pl /run/bccnd/bus.sock demo/lines
# Ends with 0 when the daemon has taken all, with 1 when it has refused something, and says what.

use strict;
use warnings;
use Socket;

my ( $path, $channel, $payload ) = @ARGV;
if ( @ARGV != 2 && @ARGV != 3 ) {
    print STDERR "usage: publish.pl SOCKET CHANNEL [PAYLOAD]\n";
    exit 2;
}

socket my $bus, AF_UNIX, SOCK_SEQPACKET, 0 or fail($!);
# Without room for the largest packet, what is larger than 208 KiB could not be sent.
setsockopt $bus, SOL_SOCKET, SO_SNDBUF, 409_600;
( my $address = $path ) =~ s/\A@/\0/;    # @name is an abstract address
connect $bus, pack_sockaddr_un($address) or fail($!);

if ( defined $payload ) {
    put("MSG $channel\0$payload");
}
else {
    binmode STDIN;
    while ( my $line = <STDIN> ) {
        chomp $line;
        put("MSG $channel\0$line");
    }
}

# The daemon echoes this when it is done with all that came before; until then it says what it has refused.
my $sync    = "CMSG !/bccn/sync\0done";
my $refused = 0;
put($sync);
while (1) {
    defined recv $bus, my $packet, 409_600 + 4096, 0 or fail($!);
    fail('the daemon has ended the connection') if $packet eq '';
    last if $packet eq $sync;
    next unless $packet =~ s{\ACMSG !/bccn/error\0}{};
    print STDERR "publish.pl: refused: $packet\n";
    $refused = 1;
}
exit $refused;

# One packet is one frame.
sub put {
    my ($frame) = @_;
    defined send $bus, $frame, MSG_NOSIGNAL or fail($!);
}

sub fail {
    my ($why) = @_;
    print STDERR "publish.pl: $path: $why\n";
    exit 1;
}
