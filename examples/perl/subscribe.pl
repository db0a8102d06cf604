#!/usr/bin/perl
# subscribe.pl - prints the messages of a pattern, as they arrive from bccnd; says on stderr what was lost.
#   ./subscribe.pl /run/bccnd/bus.sock 'demo/'
# When the daemon restarts it connects again; what is sent before that does not arrive.

use strict;
use warnings;
use Socket;

# The largest packet of the bus, and some more.
use constant ROOM => 409_600 + 4096;

unless ( @ARGV == 2 ) {
    print STDERR "usage: subscribe.pl SOCKET PATTERN\n";
    exit 2;
}
my ( $path, $pattern ) = @ARGV;
( my $address = $path ) =~ s/\A@/\0/;    # @name is an abstract address

binmode STDOUT;
$| = 1;

for ( my $connected = 0 ; ; sleep 1 ) {
    socket my $bus, AF_UNIX, SOCK_SEQPACKET, 0 or die "socket: $!\n";
    if ( connect $bus, pack_sockaddr_un($address) ) {
        $connected = 1;
        send $bus, "SUB $pattern", MSG_NOSIGNAL;    # whether and why it is refused comes as a packet
        print_packets($bus);
        warn "subscribe.pl: $path: the daemon has ended the connection\n";
        next;
    }
    warn "subscribe.pl: $path: $!\n";
    exit 1 unless $connected;
}

# A packet is a frame: MSG <key> NUL <payload>, or CMSG from the daemon itself. An empty one is the end.
sub print_packets {
    my ($bus) = @_;
    my $packet;
    while ( defined recv( $bus, $packet, ROOM, 0 ) && $packet ne '' ) {
        my ( $verb, $key, $payload ) = $packet =~ /\A (C?MSG) \x20 ([^\0]*) \0 (.*) \z/xs or next;
        if ( $verb eq 'MSG' ) {
            print "MSG $key $payload\n";
        }
        elsif ( $key eq '!/bccn/gap' ) {
            warn "subscribe.pl: $payload messages were lost here: this reader is too slow\n";
        }
        elsif ( $key eq '!/bccn/error' ) {
            warn "subscribe.pl: refused: $payload\n";
        }
    }
}
