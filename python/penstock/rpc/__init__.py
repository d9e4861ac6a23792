"""Remote calls: services of a FlatBuffers schema, called and implemented in Python. The other side may be C++.

    from penstock import rpc

    Transfer = rpc.Schema("transfer.bfbs").service("Transfer")       # made by flatc -b --schema
    with rpc.connect(endpoint, token, "transfer/user") as channel:
        result = channel.client(Transfer).write_encode(records=array, timeout=5)

    class Implementation:
        def write_encode(self, call, request): return {"count": len(request.records)}
        ...
    with rpc.Server({Transfer: Implementation()}, listen="127.0.0.1") as server: ...

Arrays that are sent lie in messages; larger ones are better exposed (channel.expose) and moved by the other side.
"""

from .channel import Channel, Client, Exposure, PendingCall, allocate
from .messages import Message, Method, Schema, Service
from .server import Call, Server, connect

__all__ = [
    "Call",
    "Channel",
    "Client",
    "Exposure",
    "Message",
    "Method",
    "PendingCall",
    "Schema",
    "Server",
    "Service",
    "allocate",
    "connect",
]
