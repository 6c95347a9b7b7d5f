// Package policy holds action contracts and the decision about a call: what an action does, to what, with which credential, what a lost answer means, and in which order
// a call is judged.
//
// It is pure: bytes and values come in, values go out. It does no I/O and reads no clock. A contract is refused whole, with every problem's file, line, column and remedy,
// unless every word in it is understood; nothing is converted silently. What an agent sends is checked against the contract's schema, put into one canonical form, and
// rendered into one exact effect; no argument can change the structure of the request that it goes into.
//
// It does not promise that a contract tells the truth about its target: that an endpoint honours an idempotency key is the operator's word, given by accepting the
// contract. "format" in a schema is an annotation and is not checked.
//
// Frozen formats: the contract's fields (contract.schema.json; fields may be added), and the strings of Step.
package policy
