// Package attack holds one test for each line of docs/threat-model.md that a program of the same user could try. There is no code here, only tests.
//
// The programs are the real ones, installed as the documentation says: spd and spctl belong to root and carry a group of their own. Everything else, the person and the agent alike, runs as
// one user without rights. The tests need root to set that up, and do nothing as root.
package attack
