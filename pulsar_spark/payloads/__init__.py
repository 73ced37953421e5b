"""Compress and encrypt the payload of one message for storage, and decrypt and decompress it again.

Rule: ProducerImpl.applyCompression and encryptMessage, ConsumerImpl.decryptPayloadIfNeeded and
uncompressPayloadIfNeeded (semantics 1.2, 1.3). Unlike in Pulsar, chunking comes after encryption, and messages of a
batch are encoded one by one.
"""
