"""What runs in the interpreter of the old TVM, with AutoTVM and Ansor in it.

Nothing here may import the rest of this library, or anything that the old TVM does not bring along,
and it has to run on Python 3.8. `peers/autotvm.py` copies the folder to where it runs it.
"""
