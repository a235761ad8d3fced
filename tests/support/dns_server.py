"""A name server on loopback that answers each question with the next address of a list."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import dns.message
import dns.rrset
from dns.asyncresolver import Resolver


@dataclass
class Answers(asyncio.DatagramProtocol):
    """Answers over UDP; nobody may keep an answer. The last one is given again and again."""

    addresses: Sequence[str]
    asked: list[str] = field(default_factory=list)
    port: int = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        answer, (question,) = dns.message.make_response(query), query.question
        address = self.addresses[min(len(self.asked), len(self.addresses) - 1)]
        self.asked.append(question.name.to_text())
        answer.answer.append(dns.rrset.from_text(question.name, 0, "IN", "A", address))
        self._transport.sendto(answer.to_wire(), addr)

    async def resolve(self, host: str, _port: int) -> list[str]:
        """Ask the server, as the system does; each call is a question of its own."""
        resolver = Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], self.port
        found = await resolver.resolve(host, "A", search=False)
        return [each.to_text() for each in found]


@asynccontextmanager
async def name_server(*addresses: str) -> AsyncIterator[Answers]:
    """Run a server with these answers."""
    loop = asyncio.get_running_loop()
    transport, answers = await loop.create_datagram_endpoint(
        lambda: Answers(addresses), local_addr=("127.0.0.1", 0)
    )
    try:
        yield answers
    finally:
        transport.close()
