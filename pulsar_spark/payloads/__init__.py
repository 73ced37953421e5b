"""What a payload is stored as: compressed, encrypted, and back. Bytes in, bytes out, a message at a time.

Rule: ProducerImpl.applyCompression and encryptMessage, ConsumerImpl.decryptPayloadIfNeeded and
uncompressPayloadIfNeeded (semantics 1.2, 1.3). A payload is compressed, then encrypted, then cut into chunks where it
is large (Pulsar encrypts each chunk by itself); the columns beside it say how to read it, on each chunk alike. Pulsar
does this to a batch as a whole; here it is done to each message of it, because an entry of several messages is several
rows and each row is read alone: by SQL, as a letter, after the others were acknowledged or deleted. A null payload,
which is no value, stays null.
"""
