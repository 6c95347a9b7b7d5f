package api

// Said is a sentence of the daemon's for whoever says it in another language: Code says which one it is, and Values what it leaves open. The English sentence stands beside it. A code that a
// client does not know is said in English.
type Said struct {
	Code   Sentence          `json:"code"`
	Values map[string]string `json:"values,omitempty"`
}

// Say makes a Said of names and values, in turn. Values that are empty are left out.
func Say(code Sentence, pairs ...string) Said {
	s := Said{Code: code}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		if s.Values == nil {
			s.Values = map[string]string{}
		}
		s.Values[pairs[i]] = pairs[i+1]
	}
	return s
}

// Sentence names a sentence of the daemon's. The zero value is invalid.
type Sentence string

// Why a card asks.
const (
	WhyNewProcess      Sentence = "why_new_process"      // the process has no session
	WhyEarlierResult   Sentence = "why_earlier_result"   // it has none, and asks for the result of an earlier execution; nothing is sent for it
	WhyActionEachTime  Sentence = "why_action_each_time" // the action asks each time
	WhyCondition       Sentence = "why_condition"        // condition, values: the action asks when the condition holds, and it does
	WhyConditionUntold Sentence = "why_condition_untold" // condition, values: whether it holds could not be told
	WhyCredential      Sentence = "why_credential"       // #nosec G101 -- a sentence; credential: it asks at every use
	WhyDoneBefore      Sentence = "why_done_before"      // the same call was carried out before, and its result delivered
	WhyWaitedBefore    Sentence = "why_waited_before"    // execution, state, reason: the same call waited before and was not answered
)

// Why it cannot be told what a program is.
const (
	DoubtPreload    Sentence = "doubt_preload"     // variable: it was started with it, and it can bring other code in
	DoubtTraced     Sentence = "doubt_traced"      // process: it traces the program
	DoubtNoScript   Sentence = "doubt_no_script"   // an interpreter of which no file says what it runs
	DoubtOtherFiles Sentence = "doubt_other_files" // it sees other files than the daemon does
	DoubtUnreadable Sentence = "doubt_unreadable"  // its script cannot be read
	DoubtFlatpak    Sentence = "doubt_flatpak"     // name: it says that it is that Flatpak, and does not run a file of it
	DoubtAppImage   Sentence = "doubt_appimage"    // it runs from an AppImage's mount
)

// What is another than in a program's last session. Each has is, was (absent: none) and since (RFC 3339).
const (
	ChangedExecutable    Sentence = "changed_executable"
	ChangedContent       Sentence = "changed_content"
	ChangedScript        Sentence = "changed_script"
	ChangedScriptContent Sentence = "changed_script_content"
	ChangedPackage       Sentence = "changed_package"
)

// Steps of an execution's life.
const (
	StepAccepted   Sentence = "step_accepted"      // tool
	StepAttached   Sentence = "step_attached"      // number, request, transport: another call belongs to it
	StepAuthorized Sentence = "step_authorized"    // by
	StepSent       Sentence = "step_sent"          // number, target
	StepTaken      Sentence = "step_taken"         // number: the target took it and is asked how it ends
	StepLost       Sentence = "step_lost"          // number, reason: the answer was lost
	StepEndUnknown Sentence = "step_end_unknown"   // number, reason: the target took it, and how it ended is not known
	StepAttempt    Sentence = "step_attempt_ended" // number, outcome, reason
	StepAsked      Sentence = "step_asked"         // by, times, finding, reason: the target was asked
	StepCompleted  Sentence = "step_completed"     // outcome, status, source
	StepDelivered  Sentence = "step_delivered"
	StepRejected   Sentence = "step_rejected"
	StepExpired    Sentence = "step_expired"
	StepWithdrawn  Sentence = "step_withdrawn"
	StepRecorded   Sentence = "step_recorded" // answered with the recorded result of an earlier one
	StepNotSent    Sentence = "step_not_sent"
	StepNotDone    Sentence = "step_not_done"
)

// Sentences lists them all.
func Sentences() []Sentence {
	return []Sentence{
		WhyNewProcess, WhyEarlierResult, WhyActionEachTime, WhyCondition, WhyConditionUntold, WhyCredential, WhyDoneBefore, WhyWaitedBefore,
		DoubtPreload, DoubtTraced, DoubtNoScript, DoubtOtherFiles, DoubtUnreadable, DoubtFlatpak, DoubtAppImage,
		ChangedExecutable, ChangedContent, ChangedScript, ChangedScriptContent, ChangedPackage,
		StepAccepted, StepAttached, StepAuthorized, StepSent, StepTaken, StepLost, StepEndUnknown, StepAttempt, StepAsked, StepCompleted, StepDelivered,
		StepRejected, StepExpired, StepWithdrawn, StepRecorded, StepNotSent, StepNotDone,
	}
}

// Assurance says how well a program is known. The zero value is invalid; an older daemon says it in words alone.
type Assurance string

// The levels.
const (
	AssuranceSystem     Assurance = "system"    // installed by the system, and not writable by the operator
	AssuranceFirst      Assurance = "first"     // the operator's own, and seen for the first time
	AssuranceUnchanged  Assurance = "unchanged" // the operator's own, and the same as when it was first seen
	AssuranceChanged    Assurance = "changed"   // not what it was in its last session
	AssuranceCannotTell Assurance = "cannot_tell"
)

// Assurances lists the levels.
func Assurances() []Assurance {
	return []Assurance{AssuranceSystem, AssuranceFirst, AssuranceUnchanged, AssuranceChanged, AssuranceCannotTell}
}
