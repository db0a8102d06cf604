#!/usr/bin/perl
# subscribe.pl - prints the messages of a pattern, with their senders, as they arrive from bccnd; reports losses on
# stderr.
#   ./subscribe.pl /run/bccnd/bus.sock 'demo/'
# Reconnects when the daemon restarts; messages sent meanwhile do not arrive.

use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Bccn;

unless ( @ARGV == 2 ) {
    print STDERR "usage: subscribe.pl SOCKET PATTERN\n";
    exit 2;
}
my ( $path, $pattern ) = @ARGV;
binmode STDOUT;
$| = 1;

my $bus = eval { Bccn->connect( $path, subscribe => [$pattern] ) };
if ( !$bus ) {
    print STDERR "subscribe.pl: $@";
    exit 1;
}
$bus->run( sub {
    my ($got) = @_;
    my $kind = $got->{kind};
    my $loss = $got->{lost} ? "$got->{lost} messages were lost here: this reader is too slow" : 'messages may have been lost here: the daemon has crashed';
    print "$got->{src} $got->{key} $got->{payload}\n" if $kind eq 'message';
    warn "subscribe.pl: $loss\n"                                   if $kind eq 'gap';
    warn "subscribe.pl: refused: $got->{reason} $got->{about}\n"   if $kind eq 'refusal';
    warn "subscribe.pl: $path: the daemon was away, and is back\n" if $kind eq 'reconnected';
} );
