package api

import (
	"fmt"
	"net/http"
	"time"
)

// Exit is spctl's exit code. The values are frozen.
type Exit int

// The exit codes.
const (
	ExitDone       Exit = 0
	ExitFailed     Exit = 1
	ExitUsage      Exit = 2
	ExitLocked     Exit = 3
	ExitProof      Exit = 4
	ExitNotFound   Exit = 5
	ExitRefused    Exit = 6
	ExitUnverified Exit = 7
	ExitNoDaemon   Exit = 69 // EX_UNAVAILABLE of sysexits(3)
)

// Codes that only clients of the operator socket meet.
const (
	CodeNoDaemon   Code = "daemon_not_running" // made by the client: nothing answers at the socket
	CodeStranger   Code = "daemon_not_trusted" // made by the client: something else than the installed spd answers
	CodeUnverified Code = "does_not_verify"    // the journal, or an answer, is not what it claims to be
	CodeTooLarge   Code = "request_too_large"
)

// table is the one place that says what a code means to HTTP and to a shell.
var table = map[Code]struct {
	status int
	exit   Exit
}{
	CodeVaultLocked:       {http.StatusLocked, ExitLocked},
	CodeUninitialized:     {http.StatusLocked, ExitLocked},
	CodeKeyring:           {http.StatusServiceUnavailable, ExitFailed},
	CodeProofNeeded:       {http.StatusUnauthorized, ExitProof},
	CodeProofWrong:        {http.StatusUnauthorized, ExitProof},
	CodeTicketOver:        {http.StatusUnauthorized, ExitProof},
	CodeTooManyTries:      {http.StatusTooManyRequests, ExitProof},
	CodeAgentCaller:       {http.StatusForbidden, ExitProof},
	CodeUsage:             {http.StatusBadRequest, ExitUsage},
	CodeKeyEncrypted:      {http.StatusUnprocessableEntity, ExitUsage},
	CodeTooLarge:          {http.StatusRequestEntityTooLarge, ExitUsage},
	CodeArguments:         {http.StatusBadRequest, ExitUsage},
	CodeMissing:           {http.StatusNotFound, ExitNotFound},
	CodeNotFound:          {http.StatusNotFound, ExitNotFound},
	CodeActionUnknown:     {http.StatusNotFound, ExitNotFound},
	CodeCredentialMissing: {http.StatusNotFound, ExitNotFound},
	CodeExists:            {http.StatusConflict, ExitFailed},
	CodeConflict:          {http.StatusConflict, ExitFailed},
	CodeResultPruned:      {http.StatusGone, ExitNotFound},
	CodeNotAccepted:       {http.StatusForbidden, ExitRefused},
	CodeTargetNotBound:    {http.StatusForbidden, ExitRefused},
	CodeSessionNeeded:     {http.StatusForbidden, ExitRefused},
	CodeDenied:            {http.StatusForbidden, ExitRefused},
	CodeExpired:           {http.StatusConflict, ExitRefused},
	CodeWithdrawn:         {http.StatusConflict, ExitRefused},
	CodeKeyReused:         {http.StatusConflict, ExitRefused},
	CodeNotSent:           {http.StatusBadGateway, ExitFailed},
	CodeJournal:           {http.StatusInsufficientStorage, ExitFailed},
	CodeQuarantine:        {http.StatusConflict, ExitUnverified},
	CodeUnverified:        {http.StatusUnprocessableEntity, ExitUnverified},
	CodeTooManyCalls:      {http.StatusTooManyRequests, ExitFailed},
	CodeRunEnded:          {http.StatusConflict, ExitRefused},
	CodeShuttingDown:      {http.StatusServiceUnavailable, ExitNoDaemon},
	CodeNoDaemon:          {http.StatusServiceUnavailable, ExitNoDaemon},
	CodeStranger:          {http.StatusServiceUnavailable, ExitNoDaemon},
	CodeInternal:          {http.StatusInternalServerError, ExitFailed},
}

// Codes lists every code that an error can carry, in no order.
func Codes() []Code {
	codes := make([]Code, 0, len(table))
	for c := range table {
		codes = append(codes, c)
	}
	return codes
}

// HTTPStatus is the status of an answer that carries this code.
func (c Code) HTTPStatus() int {
	if e, ok := table[c]; ok {
		return e.status
	}
	return http.StatusInternalServerError
}

// Exit is spctl's exit code for an error that carries this code.
func (c Code) Exit() Exit {
	if e, ok := table[c]; ok {
		return e.exit
	}
	return ExitFailed
}

// Error is a refusal in words that both sides understand. It never holds a secret.
type Error struct {
	Code       Code   `json:"code"`
	Message    string `json:"message"`                       // lower-case, without a full stop
	Hint       string `json:"hint,omitempty"`                // what to do
	RetryAfter int    `json:"retry_after_seconds,omitempty"` // with too_many_tries
}

// Errorf makes an Error without a hint.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// WithHint returns the error with what to do about it.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// WithRetryAfter returns the error with the time to wait, rounded up to a second.
func (e *Error) WithRetryAfter(d time.Duration) *Error {
	c := *e
	c.RetryAfter = int((d + time.Second - 1) / time.Second)
	return &c
}

func (e *Error) Error() string { return e.Message }

// Is matches an error of the same code, so that callers branch with errors.Is(err, &api.Error{Code: …}).
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}
