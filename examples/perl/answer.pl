#!/usr/bin/perl
# answer.pl - publishes its identity on the channel that each message on demo/question names.
#   ./answer.pl /run/bccnd/bus.sock
#   bccn pub demo/question demo/answer
# When the daemon restarts, it reconnects and subscribes again.

use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Bccn;

$| = 1;
my $bus      = Bccn->connect( $ARGV[0], subscribe => ['demo/question'] );
my $identity = $bus->identity;
print "I am $identity\n";
while ( my $got = $bus->receive ) {
    my $kind = $got->{kind};
    my $loss = $got->{lost} ? "$got->{lost} messages were lost here: this reader is too slow" : 'messages may have been lost here: the daemon has crashed';
    if ( $kind eq 'message' && $got->{key} eq 'demo/question' ) {
        print "$got->{src} asks on $got->{payload}\n";
        eval { $bus->publish( $got->{payload}, $identity ); 1 } or warn $@;    # it may name no channel
    }
    warn "$loss\n"                                 if $kind eq 'gap';
    warn "refused: $got->{reason} $got->{about}\n" if $kind eq 'refusal';
    warn "the daemon was away, and is back\n"      if $kind eq 'reconnected';
}
