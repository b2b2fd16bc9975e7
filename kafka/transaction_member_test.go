package kafka

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// As TestAWorkerThatJoinsAsAnotherMemberCommitsNothingForTheNextOwner, in a transaction: it is aborted.
func TestAMemberThatIsAnotherCommitsNothingInATransaction(t *testing.T) {
	s := &transactSource{Source: &Source{member: "one"}}
	for member, want := range map[string]error{"one": nil, "two": kerr.RebalanceInProgress} {
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.MemberID = member
		if err := s.place(nil)(req); !errors.Is(err, want) {
			t.Errorf("member %q: %v, want %v", member, err, want)
		}
	}
}
