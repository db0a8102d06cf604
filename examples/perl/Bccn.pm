# Bccn.pm - programs in Perl on the bus of bccnd: one module, with nothing but core modules.
#
#   use Bccn;
#   my $bus = Bccn->connect('/run/bccnd/bus.sock', subscribe => ['demo/']);
#   while (my $got = $bus->receive) {
#       print "$got->{src} $got->{key} $got->{payload}\n" if $got->{kind} eq 'message';
#   }
#
# Failures die with a text. A connection that is lost is made again by receive, with its subscriptions.
#
# Text and bytes: the bus carries bytes. A payload, key, pattern or path with Perl's UTF-8 flag (utf8::is_utf8), such as a
# literal under "use utf8" or what decode() returns, is text, and is sent as UTF-8. A string without it is bytes, and is
# sent as it is. What is received is bytes: utf8::decode($got->{payload}) makes text of it.
package Bccn;

use strict;
use warnings;
use Errno qw(EAGAIN EINTR);
use IO::Select;
use Socket;
use Time::HiRes qw(sleep time);

our $VERSION = '2.0.0';

# The largest packet of the bus, and some more for what comes with it.
use constant { PACKET => 409_600, ROOM => 409_600 + 4096 };

# Connects to the daemon at a path, or @name for an abstract address; without a path to that of $BCCN_SOCKET or the usual
# one. Options: subscribe (patterns), reconnect (0: a lost connection is the end).
sub connect {    ## no critic (ProhibitBuiltinHomonyms)
    my ( $class, $path, %options ) = @_;
    $path ||= $ENV{BCCN_SOCKET} || '/run/bccnd/bus.sock';
    my $self = bless {
        path      => _bytes($path),
        patterns  => [ map { _bytes($_) } @{ $options{subscribe} || [] } ],
        reconnect => $options{reconnect} // 1,
        refused   => [],
        waiting   => [],
        batch     => [],
        syncs     => 0,
    }, $class;
    $self->_join or die "$path: $!\n";
    return $self;
}

sub _join {
    my ($self) = @_;
    ( my $address = $self->{path} ) =~ s/\A@/\0/;
    socket my $socket, AF_UNIX, SOCK_SEQPACKET, 0 or return 0;
    # Without room for the largest packet, what is larger than 208 KiB could not be sent.
    setsockopt $socket, SOL_SOCKET, SO_SNDBUF, PACKET;
    CORE::connect $socket, pack_sockaddr_un($address) or return 0;
    $self->{socket} = $socket;
    $self->{asked}  = undef;
    my @batches = $self->{runs} ? 'CMSG !/bccn/batch/on' : ();
    for my $frame ( 'CMSG !/bccn/meta/on', @batches, map { _frame( 'SUB', $_ ) } @{ $self->{patterns} } ) {
        defined CORE::send $socket, $frame, MSG_NOSIGNAL or return 0;
    }
    return 1;
}

# The bytes of a string; text becomes UTF-8.
sub _bytes {
    my ($string) = @_;
    utf8::encode($string) if utf8::is_utf8($string);
    return $string;
}

# A packet is one frame. A NUL would end a pattern or key, and what is before it may match everything.
sub _frame {
    my ( $verb, $key, $payload ) = @_;
    die "a NUL cannot be part of a pattern or key\n" if $key =~ /\0/;
    return "$verb " . _bytes($key) . ( defined $payload ? "\0" . _bytes($payload) : '' );
}

sub _put {
    my ( $self, $frame ) = @_;
    return 1 if $self->{socket} && defined CORE::send $self->{socket}, $frame, MSG_NOSIGNAL;
    die "$self->{path}: $!\n";
}

# Whether and why a pattern, or a message, is refused comes as an event, and for certain by sync.
sub subscribe {
    my ( $self, $pattern ) = ( $_[0], _bytes( $_[1] ) );
    my $frame = _frame( 'SUB', $pattern );
    push @{ $self->{patterns} }, $pattern;
    return $self->_put($frame);
}

sub unsubscribe {
    my ( $self, $pattern ) = ( $_[0], _bytes( $_[1] ) );
    my ($first) = grep { $self->{patterns}[$_] eq $pattern } 0 .. $#{ $self->{patterns} };
    splice @{ $self->{patterns} }, $first, 1 if defined $first;
    return $self->_put( _frame( 'UNSUB', $pattern ) );
}

sub publish {
    my ( $self, $key, $payload ) = @_;
    return $self->_put( _frame( 'MSG', $key, $payload // '' ) );
}

# The next event, within so many seconds (without them, however long it takes), else nothing: a hash with kind
# (message, gap, refusal, reconnected, answer) and
#   message: key, payload, src, seq, received_ns, peer     gap: lost (so many messages were dropped here; 0: unknown)
#   refusal: reason, about      answer: key, payload
# Dies when the connection is over, unless it is made again.
sub receive {
    my ( $self, $seconds ) = @_;
    return shift @{ $self->{waiting} } if @{ $self->{waiting} };
    my $deadline = defined $seconds ? time + $seconds : undef;
    while ( my $event = $self->_read($deadline) ) {
        return $event unless $self->_is_late($event);
    }
    return;
}

# Passes each event to a function, for ever: die ends it. Meanwhile messages that wait come many in a packet, at a
# fraction of the cost.
sub run {
    my ( $self, $handle ) = @_;
    $self->{runs} = 1;
    $self->_put('CMSG !/bccn/batch/on') if $self->{socket};
    eval {
        while (1) {
            my $event = $self->receive;
            $handle->($event) unless ( $event->{about} // '' ) eq '!/bccn/batch/on';    # an old daemon is used without
        }
    };
    my $error = $@;
    $self->{runs} = 0;
    eval { $self->_put('CMSG !/bccn/batch/off') } if $self->{socket};
    die $error;
}

sub _read {
    my ( $self, $deadline ) = @_;
    while (1) {
        return shift @{ $self->{batch} } if @{ $self->{batch} };
        if ( !$self->{socket} ) {
            my $pause = 0.05;
            until ( $self->_join ) {
                my $left = defined $deadline ? $deadline - time : $pause;
                return if $left <= 0;
                sleep( $left < $pause ? $left : $pause );
                $pause = $pause < 0.5 ? 2 * $pause : 1;
            }
            return { kind => 'reconnected' };
        }
        my $left = defined $deadline ? $deadline - time : undef;
        $left = 0 if defined $left && $left < 0;
        return unless IO::Select->new( $self->{socket} )->can_read($left) || !defined $deadline;
        my $got = recv $self->{socket}, my $packet, ROOM, MSG_DONTWAIT;
        next if !defined $got && ( $! == EAGAIN || $! == EINTR );
        if ( !defined $got || $packet eq '' ) {
            delete $self->{socket};
            die "$self->{path}: the daemon has ended the connection\n" unless $self->{reconnect};
            next;
        }
        # A batch is MSGS <number> NUL, and each message behind its length.
        my @frames = $packet =~ /\A MSGS \x20 \d+ \0 (.*) \z/xs ? unpack( '(V/a)*', $1 ) : $packet;
        push @{ $self->{batch} }, map { _parse($_) } @frames;
    }
}

# A frame is MSG <key> NUL <payload>, or CMSG from the daemon itself. Others are of a later daemon.
sub _parse {
    my ($packet) = @_;
    my ( $verb, $key, $payload ) = $packet =~ /\A (C?MSG) \x20 ([^\0]*) \0 (.*) \z/xs or return;
    if ( $verb eq 'MSG' ) {
        my %event = ( kind => 'message', key => $key, payload => $payload, src => '', peer => 'local' );
        if ( $key =~ m{\A (?! ![/?] ) [\x21-\x39\x3b-\x7b\x7d\x7e]{1,1024} \z}x
            && $payload =~ /\A ([^:|\0]*) : (\d+) : (\d+) : ([^|\0]*) \| (.*) \z/xs )
        {
            @event{qw(src seq received_ns peer payload)} = ( $1, $2, $3, $4, $5 );
        }
        return \%event;
    }
    return { kind => 'gap', lost => $payload } if $key eq '!/bccn/gap';
    if ( $key eq '!/bccn/error' ) {
        my ( $reason, $about ) = split / /, $payload, 2;
        return { kind => 'refusal', reason => $reason, about => $about // '' };
    }
    return { kind => 'answer', key => $key, payload => $payload };
}

# Sends a control message and returns the payload of its answer, within so many seconds (5). What else comes meanwhile
# is kept for receive. Dies when it is refused, not answered, or when the connection was lost meanwhile. An answer that
# comes later is dropped: after one was not answered, this first waits for a sync.
sub ask {
    my ( $self, $key, $payload, $seconds ) = @_;
    $key = _bytes($key);
    my $deadline = time + ( $seconds // 5 );
    $self->_sync($deadline) if defined $self->{asked};
    $self->_put( _frame( 'CMSG', $key, $payload ) );
    $self->{asked} = $key;    # until its answer has come: that may be after this was given up
    return $self->_await( $key, undef, $deadline );
}

sub _sync {
    my ( $self, $deadline ) = @_;
    my $token = ++$self->{syncs} . ' of Bccn.pm';
    $self->_put( _frame( 'CMSG', '!/bccn/sync', $token ) );
    return $self->_await( '!/bccn/sync', $token, $deadline );
}

# Waits for the answer under a key, where there is an echo for the one with this payload. After it nothing is left that
# was asked: what was not answered before a sync never will be.
sub _await {
    my ( $self, $key, $echo, $deadline ) = @_;
    while ( my $event = $self->_read($deadline) ) {
        my $kind = $event->{kind};
        my $refused = $kind eq 'refusal' && $event->{about} eq $key;
        if ( $refused || _is_answer( $event, $key ) && ( !defined $echo || $event->{payload} eq $echo ) ) {
            $self->{asked} = undef;
            die "$self->{path}: $event->{reason} $key\n" if $refused;
            return $event->{payload};
        }
        next if $self->_is_late($event);
        push @{ $self->{waiting} }, $event;
        die "$self->{path}: the daemon was away meanwhile\n" if $kind eq 'reconnected';
        last if time > $deadline;    # though there may be no end of what comes
    }
    die "$self->{path}: the daemon has not answered $key\n";
}

# Whether an event is the answer to a question or sync that was given up.
sub _is_late {
    my ( $self, $event ) = @_;
    if ( defined $self->{asked} && _is_answer( $event, $self->{asked} ) ) {
        $self->{asked} = undef;
        return 1;
    }
    return _is_answer( $event, '!/bccn/sync' ) && $event->{payload} =~ / of Bccn[.]pm\z/;
}

sub _is_answer {
    my ( $event, $key ) = @_;
    return $event->{kind} eq 'answer' && $event->{key} eq $key;
}

sub identity {
    my ($self) = @_;
    return $self->ask('!/bccn/whoami');
}

# Waits until the daemon is done with all that was sent; returns what it has refused, as events.
sub sync {
    my ( $self, $seconds ) = @_;
    $self->_sync( time + ( $seconds // 5 ) );
    my @refused = grep { $_->{kind} eq 'refusal' } @{ $self->{waiting} };
    $self->{waiting} = [ grep { $_->{kind} ne 'refusal' } @{ $self->{waiting} } ];
    return @refused;
}

1;
