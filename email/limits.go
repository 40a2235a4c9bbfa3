package email

// Limits of a mail. A mail that exceeds one is rejected with the field's name.
const (
	// MaxSize bounds the composed MIME message, in bytes.
	MaxSize = 25 << 20
	// MaxRecipients bounds to, cc and bcc together. The server's answer is kept for each
	// recipient and attempt, so this bounds those records as well.
	MaxRecipients = 200
	// MaxAddressBytes bounds an address without its display name (RFC 5321).
	MaxAddressBytes = 254
	// MaxLocalBytes bounds the part of an address before the "@" (RFC 5321).
	MaxLocalBytes = 64
	// MaxDomainBytes bounds the part after the "@", as DNS counts it.
	MaxDomainBytes = 253
	// MaxNameBytes bounds a display name.
	MaxNameBytes = 255
	// MaxSubjectBytes bounds the subject.
	MaxSubjectBytes = 998
	// MaxHeaders bounds the number of custom headers.
	MaxHeaders = 100
	// MaxHeaderNameBytes bounds the name of a custom header.
	MaxHeaderNameBytes = 76
	// MaxHeaderValueBytes bounds the value of a custom header.
	MaxHeaderValueBytes = 998
	// MaxAttachments bounds the number of attachments.
	MaxAttachments = 100
	// MaxFilenameBytes bounds the file name of an attachment.
	MaxFilenameBytes = 255
	// MaxContentTypeBytes bounds the content type of an attachment.
	MaxContentTypeBytes = 255
)
