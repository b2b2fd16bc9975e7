package streammanager

import "errors"

// ErrAssignmentLost is wrapped by the error of a commit that came too late: the partitions belong to
// somebody else.
var ErrAssignmentLost = errors.New("partitions are no longer assigned to this worker")

var errAllAbandoned = errors.New("all workers are taken by calls that do not return: the function ignores its context")
