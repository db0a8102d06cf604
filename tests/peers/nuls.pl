# nuls.pl - uses keys and patterns with a NUL; prints the errors of the calls, a line each.
use strict;
use warnings;
use Bccn;

my ($path) = @ARGV;
my $nul = "\0x";
my $bus = Bccn->connect($path);
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
