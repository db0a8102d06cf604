# texts.pl - sends text and bytes, as keys, payloads and patterns, and prints the answer to a key that is text.
use strict;
use warnings;
use utf8;
use Bccn;

my ($path) = @ARGV;
my $bytes = "\xc3\xa9\xff";                                            # no text, and no UTF-8
my $bus = Bccn->connect( $path, subscribe => ['connect/é'] );
$bus->publish( 'a/é',    'é' );
$bus->publish( 'a/→',    '→' );
$bus->publish( 'a/→',    $bytes );
$bus->publish( $bytes,   '→' );
$bus->publish( 'number', 7 );
$bus->subscribe('é/→');
$bus->subscribe($bytes);
$bus->unsubscribe('é/→');
print $bus->ask( '!/é', '→' ), "\n";
$bus->sync;
