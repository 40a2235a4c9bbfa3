package server

import (
	"maps"
	"net/http"

	"github.com/posthaste-mq/posthaste"
)

// recordSender adds the header posthaste-sender to messages of a token that cannot read other
// messages, so that it can read these. Other tokens need no record, and their messages get no
// header.
func recordSender(token *posthaste.Token, messages []posthaste.Message) {
	if token == nil || token.Allows(ScopeRead) {
		return
	}
	sender := senderOf(token)
	for i := range messages {
		headers := maps.Clone(messages[i].Headers)
		if headers == nil {
			headers = make(map[string]string, 1)
		}
		headers[posthaste.HeaderSender] = sender
		messages[i].Headers = headers
	}
}

func senderOf(token *posthaste.Token) string { return "http:" + token.Name }

// sentBy reports whether a message was sent with a token of this name and the scope send.
func sentBy(token *posthaste.Token, m posthaste.MessageInfo) bool {
	return token.Allows(ScopeSend) && m.Headers[posthaste.HeaderSender] == senderOf(token)
}

// seesPayload reports whether the caller may see the payload, headers, terms and receipts of a
// message.
func seesPayload(r *http.Request, m posthaste.MessageInfo) bool {
	return seesAllPayloads(r) || sentBy(exchangeOf(r).caller, m)
}

// seesAllPayloads is seesPayload for messages of any sender.
func seesAllPayloads(r *http.Request) bool {
	token := exchangeOf(r).caller
	return token == nil || token.Allows(ScopeReadPayload)
}

// allowContent rejects a search by what the caller may not see: its result would tell.
func allowContent(r *http.Request, parameter, value string) error {
	if value == "" || seesAllPayloads(r) {
		return nil
	}
	return insufficient(ScopeReadPayload, "a search by "+parameter+" needs a token with scope \"read:payload\"")
}
