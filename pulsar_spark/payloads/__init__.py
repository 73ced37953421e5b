"""What a payload is stored as: compressed, encrypted, and back. Bytes in, bytes out, a message at a time.

Rule: ProducerImpl.applyCompression and encryptMessage, ConsumerImpl.decryptPayloadIfNeeded and
uncompressPayloadIfNeeded (semantics 1.2, 1.3). A payload is compressed, encrypted, then cut into chunks (Pulsar
encrypts each chunk). Each chunk has the columns that describe the encoding. Pulsar encodes a batch as a whole. Here
each message is encoded, because each is a row that is read alone. A null payload stays null.
"""
