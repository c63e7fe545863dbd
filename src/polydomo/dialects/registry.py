"""Which dialect a connection's first message belongs to. A new ZeroMQ dialect adds one line to `OPENERS`."""

from typing import Final

from polydomo.dialects.dcp.broker import DcpSession
from polydomo.dialects.dcp.messages import PROTOCOL as DCP_PROTOCOL
from polydomo.dialects.mdp.broker import MdpSession
from polydomo.dialects.mdp.messages import HEADERS as MDP_HEADERS
from polydomo.dialects.session import Context, Link, Opener, Session


def _open_mdp(context: Context, link: Link) -> Session:
    return MdpSession(context, link)


def _open_dcp(context: Context, link: Link) -> Session:
    return DcpSession(context, link)


OPENERS: Final[dict[bytes, Opener]] = {
    **dict.fromkeys(MDP_HEADERS, _open_mdp),
    DCP_PROTOCOL: _open_dcp,
}
