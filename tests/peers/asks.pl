# asks.pl - as asks.c; with `nul` it uses keys and patterns with a NUL, and prints the errors of the calls, a line each.
use strict;
use warnings;
use Bccn;

my ( $path, $milliseconds ) = @ARGV;
my $bus = Bccn->connect($path);
if ( $milliseconds eq 'nul' ) {
    my $nul = "\0x";
    for my $call (
        sub { Bccn->connect( $path, subscribe => [$nul] ) },
        sub { $bus->subscribe($nul) },
        sub { $bus->unsubscribe($nul) },
        sub { $bus->publish( $nul, 'payload' ) },
        sub { $bus->ask($nul) },
        )
    {
        print eval { $call->(); 1 } ? "sent\n" : $@;
    }
    $bus->sync;
    exit;
}
exit 1 if eval { $bus->ask( '!/slow', undef, 0.05 ); 1 };
$bus->publish('gave/up');
while ( my $got = $bus->receive( $milliseconds / 1000 ) ) {
    print "received $got->{key}\n";
}
print 'answer ', $bus->ask( '!/slow', undef, 20 ), "\n";
