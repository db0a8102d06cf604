#!/usr/bin/perl
# peer.pl - a small BCCN program in Perl (core modules only), written from the protocol's text and sharing no line with
# bccnd.
#
#   peer.pl send ADDRESS PORT SRC FIRST_SEQ CHAN [--key FILE]        a datagram for each line of stdin
#   peer.pl listen ADDRESS PORT [--key FILE | --habits]              prints "src seq chan payload" of each datagram
#
# --key     HMAC both ways, under the content of FILE without its line end
# --habits  listens as the Perl module Net::BCCN is known to
#
# Like that module, and unlike most programs, it sends from the port that all listen on. It knows no longest datagram.

use strict;
use warnings;
use Digest::SHA qw(hmac_sha256_hex);
use Getopt::Long;
use IO::Socket::INET;

my ( $key_file, $habits );
GetOptions( 'key=s' => \$key_file, 'habits' => \$habits ) or exit 2;
my ( $mode, $address, $port, $src, $seq, $chan ) = @ARGV;
my $words = @ARGV;
die "usage: peer.pl send ADDRESS PORT SRC FIRST_SEQ CHAN | listen ADDRESS PORT\n"
    unless $mode && ( $mode eq 'send' && $words == 6 || $mode eq 'listen' && $words == 3 );

# Payloads are bytes, whatever the locale says.
binmode $_ for \*STDIN, \*STDOUT;
STDOUT->autoflush(1);

my $key;
if ( defined $key_file ) {
    open my $file, '<:raw', $key_file or die "$key_file: $!\n";
    local $/;
    ( $key = <$file> ) =~ s/\r?\n\z//;
}

my $sock = IO::Socket::INET->new(
    Proto     => 'udp',
    LocalAddr => $mode eq 'listen' ? $address : '0.0.0.0',
    LocalPort => $port,
    ReuseAddr => 1,
    Broadcast => 1,
) or die "port $port: $@\n";

$mode eq 'send' ? send_lines() : print_datagrams();

# The first 8 bytes of HMAC-SHA-256, as 16 lowercase hex digits.
sub hmac_of {
    my ($body) = @_;
    return substr hmac_sha256_hex( $body, $key ), 0, 16;
}

sub send_lines {
    my $to = pack_sockaddr_in( $port, inet_aton($address) );
    while ( my $payload = <STDIN> ) {
        chomp $payload;
        my $body  = "$src:$seq:$chan|$payload";
        my $check = defined $key ? ':hmac=' . hmac_of($body) : '';
        $sock->send( 'BCCN1[' . length($body) . "$check]$body", 0, $to ) // die "send: $!\n";
        $seq++;
    }
}

sub print_datagrams {
    while ( defined $sock->recv( my $datagram, 65536 ) ) {
        my @fields = $habits ? by_habit($datagram) : by_the_text($datagram);
        print "@fields\n" if @fields;
    }
    die "recv: $!\n";
}

# src, seq, chan and payload as the protocol has them; empty for what is to be dropped.
sub by_the_text {
    my ($datagram) = @_;
    my ( $len, $check, $body ) = $datagram =~ /\A BCCN1 \[ ([0-9]+) (?: : ([^\]]+) )? \] (.*) \z/xs or return;
    return unless $len == length $body;
    # With a key, what carries no check is a stranger; without one, no check can be verified.
    return unless defined $check == defined $key;
    if ( defined $check ) {
        my ($sum) = $check =~ /\A hmac=(.*) \z/xs or return;
        # Sums of sums: how long this comparison takes tells nobody where the first wrong digit stands.
        return unless hmac_sha256_hex( $sum, $key ) eq hmac_sha256_hex( hmac_of($body), $key );
    }
    my ( $header, $payload ) = split /\|/, $body, 2;
    return unless defined $payload;
    my @fields = split /:/, $header, -1;
    return unless @fields == 3 && $fields[1] =~ /\A[0-9]+\z/ && !grep { $_ eq '' || /[^\x21-\x7e]/ } @fields;
    return ( @fields, $payload );
}

# What the module makes of a datagram: few characters in names, nothing behind a newline, no look at the sum.
sub by_habit {
    my ($datagram) = @_;
    my $name = qr{[A-Za-z0-9_./?]+};
    return $datagram =~ /^BCCN1\[[0-9]+(?::[^\]]*)?\]($name):([0-9]+):($name)\|(.*)/;
}
