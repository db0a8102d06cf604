# asks.pl - as asks.c.
use strict;
use warnings;
use Bccn;

my ( $path, $milliseconds ) = @ARGV;
my $bus = Bccn->connect($path);
exit 1 if eval { $bus->ask( '!/slow', undef, 0.05 ); 1 };
$bus->publish('gave/up');
while ( my $got = $bus->receive( $milliseconds / 1000 ) ) {
    print "received $got->{key}\n";
}
print 'answer ', $bus->ask( '!/slow', undef, 20 ), "\n";
