package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// mostBody bounds the body of a request. Nothing that is asked here comes near it.
const mostBody = 1 << 20

// RequestError is a request that is refused, with its HTTP status.
type RequestError struct {
	Status int
	Texts  []string
}

func (e *RequestError) Error() string { return fmt.Sprintf("%d %v", e.Status, e.Texts) }

func refuse(status int, format string, args ...any) error {
	return &RequestError{Status: status, Texts: []string{fmt.Sprintf(format, args...)}}
}

// unknownJobError is a job that is not here. It is what an operation on it fails of, too.
type unknownJobError struct{ id string }

func (e *unknownJobError) Error() string { return "Could not find Flink job (" + e.id + ")" }

// answer is what a request comes to: a body that becomes JSON.
type answer struct {
	status int // 0: 200
	body   any
}

// none is the body of an answer that says nothing more than its status. Clients take an empty one for an error.
type none struct{}

// writeJSON writes an answer. It is made before a byte is sent, so that a fault in making it is an error of its own.
func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil { // a number that JSON does not have
		status = http.StatusInternalServerError
		text, _ = json.Marshal(errorBody{[]string{"Internal server error.", "encoding the answer: " + err.Error()}})
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=UTF-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(text) // whoever does not want it any more has gone
}

// errorBody is the one form of every error. Clients know it by its only key, not by the status.
type errorBody struct {
	Errors []string `json:"errors"`
}

// writeError writes err as an answer.
func writeError(w http.ResponseWriter, err error) {
	status, texts := statusOf(err)
	writeJSON(w, status, errorBody{texts})
}

func statusOf(err error) (int, []string) {
	var refused *RequestError
	var unknown *unknownJobError
	switch {
	case errors.As(err, &refused):
		return refused.Status, refused.Texts
	case errors.As(err, &unknown):
		return http.StatusNotFound, []string{"Job " + unknown.id + " not found"}
	case errors.Is(err, ErrTooManyOperations):
		return http.StatusTooManyRequests, []string{err.Error()}
	case errors.Is(err, ErrClosing):
		return http.StatusConflict, []string{err.Error()}
	}
	return http.StatusInternalServerError, []string{"Internal server error.", err.Error()}
}

// decode reads the JSON body of a request into v, whose Flink class it names in an error. Nothing is the empty object;
// unknown fields are passed over.
func decode(r *http.Request, v any, class string) error {
	text, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return refuse(http.StatusRequestEntityTooLarge, "The body of the request is larger than %d bytes.", large.Limit)
	case err != nil:
		return refuse(http.StatusBadRequest, "The body of the request did not come in whole: %v.", err)
	case len(text) == 0:
		return nil
	}
	if err := json.Unmarshal(text, v); err != nil {
		return refuse(http.StatusBadRequest, "Request did not match expected format %s.", class)
	}
	return nil
}
