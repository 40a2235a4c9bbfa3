package bench

import (
	"bytes"
	"encoding/json"
)

// payloadBytes is the size of every payload.
const payloadBytes = 200

// payload is JSON, the default content type.
var payload = json.RawMessage(`{"text":"` + string(bytes.Repeat([]byte("x"), payloadBytes-len(`{"text":""}`))) + `"}`)
