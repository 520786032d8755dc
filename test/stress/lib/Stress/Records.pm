package Stress::Records;

# What each client saw, written down outside of the database.
#
# Every process appends to a file of its own, <label>.records, one line per
# event, flushed at once so that nothing is lost with the process:
#
#   time <TAB> kind <TAB> verb <TAB> transaction <TAB> field ...
#
# time         seconds since 1970 by the machine's clock, in microseconds
# kind         send:  the client is about to send the call
#              reply: the call returned
#              error: the call raised; fields: SQLSTATE, message
#              lost:  the connection broke before an answer came
# transaction  <label>:<number>, unique within the run
#
# The verbs and the fields that they carry:
#
#   produce        send: token or token=key or token=key=deliver_at, one per message
#                  reply: ids in the same order
#   claim, pop,    send: group, max_messages, lease, claim to ack first ('-': none),
#   claim_and_ack  max_per_key (not there: 1)
#                  reply: claim id, lease end ('-': none), the server's clock, and
#                  id=token=takeovers or id=token=takeovers=attempts=delays, one
#                  per message; '-', '-', '-' when there was none
#   ack, release   send: group, claim id, ids ('all': whole)   reply: count
#   nack, delay,   send: group, claim id, ids ('all': whole), seconds to wait ('-':
#   reject         the group's backoff), error ('-': none)     reply: count
#   resolve        send: group, claim id, what becomes of the others, and
#                  id=outcome=seconds=error, one per message   reply: count
#   extend         send: group, claim id, lease                reply: lease end
#   redrive,       send: group, ids ('all': any), what the error contains ('-':
#   discard        anything)                                   reply: count
#   seek           send: group, where to
#                  reply: claimed_before, claimed_after, the server's clock
#   savepoint, rollback_to                                     send: name
#   commit, rollback, prepare, disconnect                      no fields
#   terminate      send: label of the process that lost its backend
#   administer     reply: what was done to the stream's tables
#   group          reply: name, setting=value ... of the group's policy
#   log            reply: id=token ... as the log table holds them in the end
#   exceptions     reply: group, id=status=attempts=delays=takeovers=error ... as they
#                  are in the end
#   superseded     reply: group, id ... as the delivery log has them
#   ended          reply: group, claim=id=outcome ... as the delivery log has them
#   seen           reply: id=token ... as the log table had them at this moment
#   dropped        reply: the id up to which messages are dropped
#   partitions     reply: number ... of the partitions of the log
#   rotation       reply: phase and generation of the tables of idempotency keys,
#                  how many transactions have produced and are open
#   dead           reply: group=id=(1: because of a lost lease, or 0) ...
#   setting        send: name, value in seconds                reply: name
#   crash          no fields; reply: the server is there again
#   upkeep         reply: what was done to maintenance, how often (not there: once)
#   keeper         reply: name and id of a stream of Stress::Keeper
#   found          reply: kind and detail of what it found wrong
#
# A statement outside of a transaction block is a transaction by itself: its
# "send commit" comes before the call, because it may commit at any time after,
# and when it failed a "send rollback" follows.

use strict;
use warnings;
use IO::Handle;
use Time::HiRes ();

# Opens the file of one process for appending.
sub new
{
	my ($class, $directory, $label) = @_;
	my $path = "$directory/$label.records";
	open my $file, '>>:encoding(UTF-8)', $path
	  or die "could not open $path: $!\n";
	$file->autoflush(1);
	return bless { file => $file, path => $path }, $class;
}

# Appends one event, stamped with the time of the call.
sub write
{
	my ($self, $kind, $verb, $transaction, @fields) = @_;
	my $time = Time::HiRes::time();
	tr/\t\r\n/   / for @fields;
	print { $self->{file} }
	  join("\t", sprintf('%.6f', $time), $kind, $verb, $transaction, @fields), "\n"
	  or die "could not write to $self->{path}: $!\n";
	return;
}

# Calls $visit->(label, time, kind, verb, transaction, fields...) for each
# event of each file in the directory, in the order of each file.
sub visit_all
{
	my ($directory, $visit) = @_;
	my @paths = sort glob("$directory/*.records");
	die "no records in $directory\n" unless @paths;
	foreach my $path (@paths)
	{
		my ($label) = $path =~ m{([^/]+)\.records$};
		open my $file, '<:encoding(UTF-8)', $path
		  or die "could not open $path: $!\n";
		while (my $line = <$file>)
		{
			die "$path line $.: cut off\n" unless chomp $line;
			$visit->($label, split /\t/, $line);
		}
		close $file;
	}
	return;
}

1;
