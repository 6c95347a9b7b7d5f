package look

import (
	"errors"
	"time"

	"fyne.io/fyne/v2"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/words"
)

// Trouble shows an error with what to do about it. Where its sentence does not say all that the daemon said, the daemon's own words stand after it.
func Trouble(err error) fyne.CanvasObject {
	var e *api.Error
	if !errors.As(err, &e) {
		return NewNotice(Wrong, ShapeWarning, Body(err.Error()))
	}
	text, whole := Refusal(e)
	runs := []Run{{text, Style{}}}
	if !whole && e.Message != "" && e.Message != text {
		runs = append(runs, Run{"  " + e.Message, Style{Color: Muted}})
	}
	if hint := remedy(e); hint != "" {
		runs = append(runs, Run{"  " + hint, Style{Color: Muted}})
	}
	return NewNotice(Wrong, ShapeWarning, Paragraph(runs...))
}

// Refusal says why the daemon refused something, by its code, and whether that is all there is to say. A code that this version does not know is said in the daemon's words.
func Refusal(e *api.Error) (text string, whole bool) {
	switch e.Code {
	case api.CodeNoDaemon:
		return words.Say("trouble.no_daemon"), true
	case api.CodeVaultLocked:
		return words.Say("trouble.locked"), true
	case api.CodeMissing:
		return words.Say("trouble.gone"), true
	case api.CodeExpired:
		return words.Say("trouble.expired"), true
	case api.CodeNotFound:
		return words.Say("trouble.no_execution"), true
	case api.CodeUninitialized:
		return words.Say("trouble.no_vault"), true
	case api.CodeProofNeeded:
		return words.Say("trouble.proof_needed"), true
	case api.CodeTicketOver:
		return words.Say("trouble.ticket_over"), true
	case api.CodeProofWrong:
		return words.Say("trouble.proof_wrong"), true
	case api.CodeTooManyTries:
		return words.Say("door.wait", "Span", Gap(time.Duration(e.RetryAfter)*time.Second)), true
	case api.CodeAgentCaller:
		return words.Say("trouble.agent"), false
	case api.CodeStranger:
		return words.Say("trouble.stranger"), false
	case api.CodeUsage:
		return words.Say("trouble.usage"), false
	case api.CodeTooLarge:
		return words.Say("trouble.too_large"), false
	case api.CodeArguments:
		return words.Say("trouble.arguments"), false
	case api.CodeActionUnknown:
		return words.Say("trouble.action_unknown"), false
	case api.CodeCredentialMissing:
		return words.Say("trouble.credential_missing"), false
	case api.CodeExists:
		return words.Say("trouble.exists"), false
	case api.CodeConflict:
		return words.Say("trouble.conflict"), false
	case api.CodeResultPruned:
		return words.Say("trouble.pruned"), false
	case api.CodeNotAccepted:
		return words.Say("trouble.not_accepted"), false
	case api.CodeTargetNotBound:
		return words.Say("trouble.not_bound"), false
	case api.CodeSessionNeeded:
		return words.Say("trouble.session_needed"), false
	case api.CodeDenied:
		return words.Say("trouble.denied"), false
	case api.CodeWithdrawn:
		return words.Say("trouble.withdrawn"), false
	case api.CodeKeyReused:
		return words.Say("trouble.key_reused"), false
	case api.CodeNotSent:
		return words.Say("trouble.not_sent"), false
	case api.CodeJournal:
		return words.Say("trouble.journal"), false
	case api.CodeQuarantine:
		return words.Say("trouble.quarantine"), false
	case api.CodeUnverified:
		return words.Say("trouble.unverified"), false
	case api.CodeTooManyCalls:
		return words.Say("trouble.too_many_calls"), false
	case api.CodeRunEnded:
		return words.Say("trouble.run_ended"), false
	case api.CodeShuttingDown:
		return words.Say("trouble.shutting_down"), false
	case api.CodeKeyring:
		return words.Say("trouble.keyring"), false
	case api.CodeKeyEncrypted:
		return words.Say("trouble.key_encrypted"), false
	case api.CodeInternal:
		return words.Say("trouble.internal"), false
	}
	return e.Message, true
}

// remedy is what to do about an error: in the person's language where the sentence does not say it already, and else the daemon's hint, which most often is a command.
func remedy(e *api.Error) string {
	switch e.Code {
	case api.CodeProofNeeded, api.CodeTicketOver, api.CodeProofWrong, api.CodeTooManyTries, api.CodeExpired:
		return "" // the sentence says it
	case api.CodeNoDaemon:
		return words.Say("banner.down_hint")
	case api.CodeVaultLocked:
		return words.Say("trouble.locked_hint")
	case api.CodeInternal, api.CodeKeyring:
		if e.Hint == "" {
			return words.Say("trouble.doctor")
		}
	}
	return e.Hint
}
