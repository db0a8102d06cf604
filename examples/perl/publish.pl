#!/usr/bin/perl
# publish.pl - publishes one message, or each line of its input, through bccnd.
#   ./publish.pl /run/bccnd/bus.sock demo/hello 'hello, world'
#   printf 'one\ntwo\n' | ./publish.pl /run/bccnd/bus.sock demo/lines
# Exits with 0 if the daemon accepted everything, with 1 if it refused something; it reports refusals on stderr.

use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Bccn;

my ( $path, $channel, $payload ) = @ARGV;
if ( @ARGV != 2 && @ARGV != 3 ) {
    print STDERR "usage: publish.pl SOCKET CHANNEL [PAYLOAD]\n";
    exit 2;
}

my @refused = eval {
    my $bus = Bccn->connect( $path, reconnect => 0 );
    if ( defined $payload ) {
        $bus->publish( $channel, $payload );
    }
    else {
        binmode STDIN;
        while ( my $line = <STDIN> ) {
            chomp $line;
            $bus->publish( $channel, $line );
        }
    }
    $bus->sync(60);
};
if ($@) {
    print STDERR "publish.pl: $@";
    exit 1;
}
print STDERR "publish.pl: refused: $_->{reason} $_->{about}\n" for @refused;
exit( @refused ? 1 : 0 );
