"""What the watcher does beside the server: its orders, health, a few requests, a verdict, the record.

NOTE: all of it runs in a process of its own with the standard library only; nothing here may import
anything of autolaunch but its neighbours here.
"""
