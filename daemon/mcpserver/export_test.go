package mcpserver

// AppendResult is appendResult, for its fuzz test.
var AppendResult = appendResult
