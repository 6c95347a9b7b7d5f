package look

import (
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/words"
)

// Said says a sentence of the daemon's in the person's language. Where the daemon gave no code for it, or one that this version does not know, its own words are said.
//
// What it leaves open comes from the daemon as it has it: names, addresses, and reasons in free words, which stay as they are.
func Said(s api.Said, daemonsWords string) string {
	if text := sentence(s.Code, s.Values); text != "" {
		return text
	}
	return daemonsWords
}

func sentence(code api.Sentence, v map[string]string) string {
	switch code {
	case api.WhyNewProcess:
		return words.Say("said.why_new_process")
	case api.WhyEarlierResult:
		return words.Say("said.why_earlier_result")
	case api.WhyActionEachTime:
		return words.Say("said.why_action_each_time")
	case api.WhyCondition:
		return words.Say("said.why_condition", "Condition", v["condition"], "Values", v["values"])
	case api.WhyConditionUntold:
		return words.Say("said.why_condition_untold", "Condition", v["condition"], "Values", v["values"])
	case api.WhyCredential:
		return words.Say("said.why_credential", "Credential", v["credential"])
	case api.WhyDoneBefore:
		return words.Say("said.why_done_before")
	case api.WhyWaitedBefore:
		_, _, state := State(api.Record{State: v["state"]})
		return because(words.Say("said.why_waited_before", "Execution", v["execution"], "State", state), v["reason"])
	case api.DoubtPreload:
		return words.Say("said.doubt_preload", "Variable", v["variable"])
	case api.DoubtTraced:
		return words.Say("said.doubt_traced", "Process", v["process"])
	case api.DoubtNoScript:
		return words.Say("said.doubt_no_script")
	case api.DoubtOtherFiles:
		return words.Say("said.doubt_other_files")
	case api.DoubtUnreadable:
		return words.Say("said.doubt_unreadable")
	case api.DoubtFlatpak:
		return words.Say("said.doubt_flatpak", "Name", v["name"])
	case api.DoubtAppImage:
		return words.Say("said.doubt_appimage")
	}
	if text := changed(code, v); text != "" {
		return text
	}
	return step(code, v)
}

// changed says what is another than in a program's last session.
func changed(code api.Sentence, v map[string]string) string {
	is, was, since := orNone(v["is"]), orNone(v["was"]), v["since"]
	if at, err := time.Parse(time.RFC3339, since); err == nil {
		since = at.Local().Format("2006-01-02 15:04")
	}
	switch code {
	case api.ChangedExecutable:
		return words.Say("said.changed_executable", "Is", is, "Was", was, "Since", since)
	case api.ChangedContent:
		return words.Say("said.changed_content", "Is", is, "Was", was, "Since", since)
	case api.ChangedScript:
		return words.Say("said.changed_script", "Is", is, "Was", was, "Since", since)
	case api.ChangedScriptContent:
		return words.Say("said.changed_script_content", "Is", is, "Was", was, "Since", since)
	case api.ChangedPackage:
		return words.Say("said.changed_package", "Is", is, "Was", was, "Since", since)
	}
	return ""
}

// step says one moment of an execution's life.
func step(code api.Sentence, v map[string]string) string {
	n := v["number"]
	switch code {
	case api.StepAccepted:
		return words.Say("said.step_accepted", "Tool", v["tool"])
	case api.StepAttached:
		return words.Say("said.step_attached", "N", n, "Request", v["request"], "Transport", v["transport"])
	case api.StepAuthorized:
		return words.Say("said.step_authorized", "By", v["by"])
	case api.StepSent:
		return words.Say("said.step_sent", "N", n, "Target", v["target"])
	case api.StepTaken:
		return words.Say("said.step_taken", "N", n)
	case api.StepLost:
		return because(words.Say("said.step_lost", "N", n), v["reason"])
	case api.StepEndUnknown:
		return because(words.Say("said.step_end_unknown", "N", n), v["reason"])
	case api.StepAttempt:
		return because(words.Say("said.step_attempt_ended", "N", n, "Outcome", outcome(v["outcome"])), v["reason"])
	case api.StepAsked:
		text := words.Say("said.step_asked", "By", v["by"], "Found", Found(v["finding"]))
		if v["times"] != "" && v["times"] != "1" {
			text = words.Say("said.step_asked_times", "By", v["by"], "Times", v["times"], "Found", Found(v["finding"]))
		}
		return because(text, v["reason"])
	case api.StepCompleted:
		text := outcome(v["outcome"])
		if v["status"] != "" {
			text += " " + words.Say("result.status", "Status", v["status"])
		}
		if s := Source(v["source"]); s != "" {
			text += " " + s
		}
		return text
	case api.StepDelivered:
		return words.Say("said.step_delivered")
	case api.StepRejected:
		return words.Say("said.step_rejected")
	case api.StepExpired:
		return words.Say("said.step_expired")
	case api.StepWithdrawn:
		return words.Say("said.step_withdrawn")
	case api.StepRecorded:
		return words.Say("result.recorded")
	case api.StepNotSent:
		return words.Say("said.step_not_sent")
	case api.StepNotDone:
		return words.Say("result.not_done")
	}
	return ""
}

// because adds a reason in the daemon's own words.
func because(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + " (" + reason + ")"
}

func orNone(s string) string {
	if s == "" {
		return words.Say("said.none")
	}
	return s
}

// outcome is what the target's answer came to.
func outcome(o string) string {
	switch o {
	case "success":
		return words.Say("result.success")
	case "target_error":
		return words.Say("result.error")
	case "not_sent":
		return words.Say("said.step_not_sent")
	}
	return o
}

// Source says from where an outcome is known; empty where it is the target's answer itself.
func Source(s string) string {
	switch s {
	case "late_answer":
		return words.Say("source.late")
	case "status_query":
		return words.Say("source.query")
	case "marker":
		return words.Say("source.marker")
	case "operator":
		return words.Say("source.operator")
	}
	return ""
}

// Found says what the target said when it was asked.
func Found(finding string) string {
	switch finding {
	case "done":
		return words.Say("check.done")
	case "failed":
		return words.Say("check.failed")
	case "not_done":
		return words.Say("check.not_done")
	case "running":
		return words.Say("check.running")
	}
	return words.Say("check.cannot_tell")
}

// Assured says by a shape and in words how well a program is known. An older daemon gives no code, and its words are said.
func Assured(level api.Assurance, daemonsWords string) (Tone, Shape, string) {
	switch level {
	case api.AssuranceSystem:
		return Fine, ShapeLock, words.Say("assurance.system")
	case api.AssuranceFirst:
		return Careful, ShapeOpenLock, words.Say("assurance.first")
	case api.AssuranceUnchanged:
		return Careful, ShapeOpenLock, words.Say("assurance.unchanged")
	case api.AssuranceChanged:
		return Wrong, ShapeWarning, words.Say("assurance.changed")
	}
	if level != api.AssuranceCannotTell && daemonsWords != "" {
		return Careful, ShapeOpenLock, daemonsWords
	}
	return Wrong, ShapeWarning, words.Say("assurance.cannot_tell")
}
