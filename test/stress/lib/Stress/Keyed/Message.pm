package Stress::Keyed::Message;

# What a message of the keyed stream is, as its token tells:
#
#   <producer>.<number>                              without a key
#   <producer>.<number>/<key>                        with one
#   <producer>.<number>/<key>/<version>.<rank>       compacted
#
# The first letter of a key says what its messages ask for: o ordered,
# x exclusive, n nothing.

use strict;
use warnings;

my %ASKED = (o => 'ordered', x => 'exclusive');

# What the groups make of that: the arguments of create_group.
my %GROUPS = (
	asking => '',
	defaulting => q{, concurrency => 'exclusive'},
	overriding => q{, concurrency_override => 'ordered'});

# The groups of the keyed stream: name => further arguments of create_group.
sub groups { return %GROUPS }

# What a key's messages ask for; undefined: nothing.
sub asked { my ($key) = @_; return $ASKED{ substr $key, 0, 1 } }

# The token of a message; no key, or no version and rank, where they are undefined.
sub token
{
	my ($name, $key, $version, $rank) = @_;
	return join '/', $name, $key // (), defined $version ? "$version.$rank" : ();
}

# { id, key, version, rank } of a token; the last two are undefined where it is
# not compacted.
sub parse
{
	my ($id, $token) = @_;
	my (undef, $key, $head) = split m{/}, $token;
	my ($version, $rank) = split /\./, $head // '';
	return { id => $id, key => $key, version => $version, rank => $rank };
}

# How a group delivers messages of a key: parallel, exclusive or ordered.
sub policy
{
	my ($group, $key) = @_;
	return 'parallel' unless defined $key;
	return 'ordered' if $group eq 'overriding';
	return asked($key) // ($group eq 'defaulting' ? 'exclusive' : 'parallel');
}

# Whether a compacted message supersedes another of its key.
sub supersedes
{
	my ($message, $other) = @_;
	return ($message->{version} <=> $other->{version} || $message->{rank} <=> $other->{rank}
		  || $message->{id} <=> $other->{id}) > 0;
}

1;
