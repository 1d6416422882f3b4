"""Clients of the programs that jobs use, each with errors that say whether a retry helps.

plecs   the simulator PLECS, by XML-RPC
wats    the server for test reports WATS, by HTTP"""
